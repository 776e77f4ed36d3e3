"""These tests run where serde-chain is built with its compiled part; `make test-native` requires it."""

from serde_chain.stages.avro.native import library

collect_ignore_glob = [] if library() is not None else ["test_columns.py", "test_parity.py", "test_stage.py"]
