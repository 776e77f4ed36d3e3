"""The end of commands: signals."""

import signal

import pytest

from serde_chain.cli.program import stopped_by_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_command_in_order_and_a_second_one_at_once(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with stopped_by_signals() as stop:
        assert not stop.is_set()
        signal.raise_signal(number)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    # Another signal of the process, whose command has ended, is not swallowed.
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
