"""A strategy's tests one after another, so that its programs are compiled once and then let go."""


def pytest_collection_modifyitems(items):
    places: dict[str, int] = {}

    def strategy(item):
        params = item.callspec.params if hasattr(item, "callspec") else {}
        name = f"{item.path}{params.get('name', '')}" if "name" in params else str(item.path)
        return places.setdefault(name, len(places))

    items.sort(key=strategy)
