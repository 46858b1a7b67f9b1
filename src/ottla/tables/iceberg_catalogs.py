"""Catalogues by URL: `sqlite:///FILE` and `postgresql://...`, both through pyiceberg's SQL one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from ottla.redaction import redact
from ottla.tables.errors import BadTableSetting, TableError
from ottla.tables.remedies import remedy

if TYPE_CHECKING:
    from ottla.objects.location import StoreLocation

NAME: Final = "ottla"
"""The catalogue's name in its own rows."""
FILE_IO: Final = "ottla.tables.iceberg_io.SyncedFileIO"

# The store library's names of options, and pyiceberg's.
_S3: Final = {
    "endpoint": "s3.endpoint",
    "region": "s3.region",
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
}


def open_catalog(url: str, warehouse: StoreLocation) -> SqlCatalog:
    """Connect; tables of an empty database are made."""
    named = redact(url)
    scheme = url.partition(":")[0]
    if scheme == "postgresql":
        url = "postgresql+psycopg" + url.removeprefix("postgresql")
    elif scheme != "sqlite":
        raise BadTableSetting(
            "ottla.table.catalog: expected sqlite:///FILE or postgresql://HOST/DATABASE, "
            f"got {named!r}"
        )
    try:
        return SqlCatalog(
            NAME, **{"uri": url, "warehouse": str(warehouse), **file_properties(warehouse)}
        )
    except SQLAlchemyError as error:
        # The driver's own words: SQLAlchemy adds the statement and a link.
        cause = error.orig if isinstance(error, DBAPIError) else error
        why = " ".join(redact(cause).split())
        raise TableError(f"cannot open the catalogue {named}: {why}{remedy(error)}") from error


def file_properties(warehouse: StoreLocation) -> dict[str, str]:
    """How pyiceberg opens files of the warehouse."""
    found = {"py-io-impl": FILE_IO}
    if warehouse.kind == "s3":
        # The variable that the store's own library reads, too.
        options = {"endpoint": os.environ.get("AWS_ENDPOINT_URL"), **warehouse.options}
        found |= {name: value for key, name in _S3.items() if (value := options.get(key))}
    return found
