"""The database behind an MLflow store, asked itself: of ten thousand runs MLflow's client makes a million objects.

Only tables are read that MLflow has had since its first version with a database, and nothing is written.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy
from mlflow import MlflowClient


def is_database(client: MlflowClient) -> bool:
    """Tell whether the store of a client is a database: a server has one too, which only it can ask."""
    return not client.tracking_uri.startswith(("http:", "https:", "file:"))


def database_rows(
    client: MlflowClient, query: str, values: dict[str, Any], several: Sequence[str] = ()
) -> list[tuple[Any, ...]]:
    """Give the rows that a query finds in the database of a store.

    Args:
        client: its client; see `is_database`
        query: in SQL, with values as `:name`
        values: of the query, by name
        several: names of values that are lists, for `IN :name`
    """
    statement = sqlalchemy.text(query).bindparams(*(sqlalchemy.bindparam(name, expanding=True) for name in several))
    engine = sqlalchemy.create_engine(client.tracking_uri)
    try:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(statement, values)]
    finally:
        engine.dispose()
