"""Scalars of TensorBoard's event files."""


def read_events(folder):
    """Return tag, step and value of every scalar, read by the format's definition.

    An event is stored as its length, a checksum, the event and a checksum.
    """
    # tensorboardX imports torch where that is installed, which takes seconds.
    from tensorboardX.proto.event_pb2 import Event

    (path,) = folder.glob("events.*")
    content, place, results = path.read_bytes(), 0, []
    while place < len(content):
        length = int.from_bytes(content[place : place + 8], "little")
        event = Event.FromString(content[place + 12 : place + 12 + length])
        results += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
        place += 16 + length
    return results
