"""What a consumer holds between its calls."""

from confluent_kafka import Message

from serde_chain.clients.window import Window


def message(partition: int, offset: int) -> "Message[bytes, bytes]":
    return Message(topic="t", partition=partition, offset=offset, value=b"v")


def test_what_was_handed_over_is_taken_out_and_nothing_else() -> None:
    window = Window()
    first, second, third = message(0, 0), message(1, 0), message(0, 1)
    window.fetch_several(lambda _most, _seconds: [first, second, third], 3, 0)
    window.given = [first, second]
    # As many are left as were handed over, and they are others.
    window.drop({("t", 1)})
    window.settle()
    assert list(window.waiting()) == [third]
    # An interrupt came after they were taken out, and before that was noted.
    window.given = [first]
    window.settle()
    assert list(window.waiting()) == [third]
    window.given = [third]
    window.settle()
    assert window.front() is None
    assert not window.given
    assert not window.decoded


def test_paused_partitions_wait() -> None:
    window = Window()
    first, second = message(0, 0), message(1, 0)
    for each in (first, second):
        window.fetch(lambda _seconds, each=each: each, 0)  # type: ignore[misc]
    window.fetch(lambda _seconds: None, 0)
    window.paused = {("t", 0)}
    assert list(window.waiting()) == [second]
    assert window.front() is second
    assert window.first_offsets() == {("t", 0): 0, ("t", 1): 0}
    window.given = [second]
    window.settle()
    assert window.front() is None
    window.paused = set()
    assert window.front() is first
