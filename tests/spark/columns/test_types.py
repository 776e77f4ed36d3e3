"""Types that a user passes for a column."""

import pytest

from serde_chain.errors import ConfigError
from serde_chain.spark.columns.types import arrow_of

# The JVM parses types that are text.
pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.parametrize(
    "schema", ["variant", "id bigint, more variant", "struct<a: array<variant>>", "map<string, variant>"]
)
def test_a_variant_is_refused_where_it_would_be_null(schema: str) -> None:
    with pytest.raises(ConfigError, match="parse_json") as raised:
        arrow_of(schema)
    assert raised.value.key == "schema"


def test_what_is_no_type_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"(?s)not a Spark type: .*BIGINTT"):
        arrow_of("id bigintt")
