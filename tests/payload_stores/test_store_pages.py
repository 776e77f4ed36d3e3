"""The code of the stores' pages runs, on a server of ours."""

import pytest

from serde_chain.testing.services import S3Server
from tests.environments import ROOT, parts, python_blocks, section


@pytest.mark.parametrize(
    ("name", "printed"),
    [("s3", ["9 days, 0:00:00", "b'901'", "b'9'"]), ("objects", ["b'901'", "b'9'"])],
)
def test_the_code_of_a_page(
    s3_server: S3Server, bucket: str, capsys: pytest.CaptureFixture[str], name: str, printed: list[str]
) -> None:
    page = (ROOT / "docs" / "stores" / "s3.md").read_text(encoding="utf-8")
    code = "\n".join(python_blocks(parts(page)[0] if name == "s3" else section(page, "The store `objects`")))
    if name == "s3":
        written, config = '{"s3.bucket": "payloads", "s3.region": "eu-west-1"}', s3_server.store_config(bucket)
    else:
        written, config = (
            '{"objects.url": "s3://payloads/", "objects.region": "eu-west-1"}',
            s3_server.objects_config(bucket),
        )
    assert written in code
    exec(code.replace(written, repr(config)), {})  # noqa: S102  a page of ours
    assert capsys.readouterr().out.splitlines() == printed
