"""What is loaded when: servers for users who have no pytest, the suites for those who do."""

import subprocess
import sys

import pytest

import serde_chain.testing


def test_services_and_demo_need_no_pytest() -> None:
    program = (
        "import sys, serde_chain.testing.services, serde_chain.testing.alerts, serde_chain.cli.demo.alerts\n"
        "assert not {'pytest', 'hypothesis'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_suite_is_public() -> None:
    assert dir(serde_chain.testing) == ["SerializerTests"]
    assert serde_chain.testing.SerializerTests.__module__ == "serde_chain.testing.serializers"
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = getattr(serde_chain.testing, "Nothing")  # noqa: B009, a type checker would find it
