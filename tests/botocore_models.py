"""botocore's descriptions of services, parsed once per process; each boto3 session parses them again, for 80 ms."""

from functools import cache
from typing import Any


@cache
def keep() -> None:
    """Cache parsed service descriptions for the rest of the process."""
    from botocore.loaders import JSONFileLoader

    loader: Any = JSONFileLoader
    parsed = cache(loader().load_file)
    loader.load_file = lambda _self, path: parsed(path)
