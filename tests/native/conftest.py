"""These tests exist where the compiled part is installed; `make test-native` installs it first."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("serde_chain_native") else ["test_columns.py", "test_parity.py", "test_stage.py"]
