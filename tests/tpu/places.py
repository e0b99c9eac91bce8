"""Made-up machines, and the table of places as a page: ``python tests/tpu/places.py``."""

import pathlib
import tomllib
from collections.abc import Mapping

HERE = pathlib.Path(__file__).parent
PLACES = tomllib.loads((HERE / "places.toml").read_text("utf-8"))["place"]
PAGE = HERE / "places.md"

# What stands on the PCI bus, by vendor and device.
CHIPS = {
    **{"v3": "0x1ae0 0x0027", "v4": "0x1ae0 0x005e", "v5p": "0x1ae0 0x0062"},
    **{"v5e": "0x1ae0 0x0063", "v6e": "0x1ae0 0x006f", "tpu7x": "0x1ae0 0x0076"},
}


def machine(root: pathlib.Path, files: list[str], *buses: str) -> pathlib.Path:
    """Make a file system with files (``path`` or ``path=content``) and devices (``4 v5e``)."""
    devices = []
    for bus in filter(None, buses):
        times, _, chip = bus.partition(" ")
        devices += [CHIPS.get(chip, chip).split()] * int(times)
    for number, device in enumerate(devices):
        folder = root / f"sys/bus/pci/devices/0000:00:{number:02}.0"
        folder.mkdir(parents=True)
        for name, value in zip(("vendor", "device"), device, strict=True):
            (folder / name).write_text(f"{value}\n")
    for file in files:
        path, _, content = file.partition("=")
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return root


def found(place: Mapping) -> str:
    """What is there, in a cell of the table."""
    variables = [f"{name}={value}" for name, value in place.get("environment", {}).items()]
    devices = [f"/{file}" for file in place.get("files", [])]
    words = [f"`{x if len(x) <= 60 else x[:57] + '...'}`".replace("|", "") for x in variables]
    on_bus = [f"on PCI: {place['bus']}"] if "bus" in place else []
    return ", ".join([*words, *(f"`{x}`" for x in devices), *on_bus]) or "nothing"


def page() -> str:
    """The table in Markdown."""
    heads = "place", "what is set and attached there", "kind", "TPU", "replicas", "source"
    rows = [heads, ["---"] * len(heads)]
    for place in PLACES:
        kind, tpu, replicas, _ = place["expected"].split(" | ")
        answer = kind, *("" if x == "None" else x for x in (tpu, replicas))
        rows.append([place["name"], found(place), *answer, place["source"]])
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return (
        "# Places where `detect` was tried\n\n"
        "Each is made up from what its source says is set there, in places.toml; none of them was\n"
        f"visited. The tests compare the answers.\n\n{lines}\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
