"""Where TPUs are rented, read from ``zones.toml``."""

import dataclasses

from helpers.base import html
from helpers.tpu.facts import facts
from tpu_preflight.chips.hardware import slice_of

PAGE = "https://cloud.google.com/tpu/docs/regions-zones"
# Every line of the page about these zones was read. Elsewhere there are more zones, whose lines we
# could not read: a zone there is a doubt, not an error.
READ_WHOLLY = "us-"


@dataclasses.dataclass(frozen=True)
class Offer:
    """Where a kind of TPU is rented; ``sizes`` are its types that are meant, all if empty."""

    chip: str
    zones: tuple[str, ...]
    source: str
    checked: str
    sizes: tuple[str, ...] = ()


OFFERS = tuple(Offer(**row) for row in facts("zones.toml")["offers"])
CHECKED = min(offer.checked for offer in OFFERS)
_NOTE = f"Read {CHECKED}; there may be more outside the USA."


@dataclasses.dataclass(frozen=True)
class Zones:
    """Which TPU is rented where, with the page and the month in which it was read."""

    offers: tuple[Offer, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The zones, in the order of the table."""
        return tuple(dict.fromkeys(zone for offer in self.offers for zone in offer.zones))

    def _rows(self) -> list[tuple[str, str, str]]:
        return [
            (", ".join(x.sizes) or f"all {x.chip}", ", ".join(x.zones), x.source)
            for x in self.offers
        ]

    def __repr__(self) -> str:
        lines = [f"{types}: {zones} ({source})" for types, zones, source in self._rows()]
        return "\n".join([*lines, _NOTE])

    def _repr_html_(self) -> str:
        return html.render("zones.html", rows=self._rows(), note=_NOTE)


def zones(accelerator_type: str | None = None) -> Zones:
    """Look up where TPUs are rented: all, or a type such as ``v5e-8``.

    Raises:
        UnknownAccelerator: There is no such type.
    """
    if accelerator_type is None:
        return Zones(OFFERS)
    wanted = slice_of(accelerator_type)
    return Zones(
        tuple(
            offer
            for offer in OFFERS
            if offer.chip == wanted.chip.name and (not offer.sizes or wanted.name in offer.sizes)
        )
    )
