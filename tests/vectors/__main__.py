"""``python -m tests.vectors``: write the vectors anew."""

from pathlib import Path

import serde_chain.testing
from serde_chain.testing.services import S3Server
from tests.vectors.build import FILES, bucket, build, text_of

FOLDER = Path(serde_chain.testing.__file__).parent / "vectors"

if __name__ == "__main__":
    with S3Server() as server, bucket(server) as (client, store):
        for name in FILES:
            (FOLDER / f"{name}.json").write_text(text_of(build(name, client, store)), encoding="utf-8")
