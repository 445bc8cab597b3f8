"""The resumable position in a file of this host (`binlog.checkpoint_store: file`). The fence stays in MySQL."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_outbox.errors import Refused
from cdc_outbox.gtid import GtidSet
from cdc_outbox.model import Position

if TYPE_CHECKING:
    from cdc_outbox.config import Settings


class PositionFile:
    """One relay's position. Written whole or not at all: a crash leaves the old file or the new one."""

    def __init__(self, path: str, relay: str) -> None:
        self.path = Path(path)
        self._relay = relay

    def read(self, server_uuid: str) -> Position | None:
        """The position, None where none was written yet. By file and offset it has no offset on another server.

        Raises Refused when the file cannot be read, or is another relay's.
        """
        stored = self._stored()
        if stored is None:
            return None
        position, uuid = stored
        if position.gtid_set is None and uuid != server_uuid:
            return Position(position.file, 0)
        return position

    def written_elsewhere(self, server_uuid: str) -> bool:
        """Whether the position was written while another server was the primary.

        A GTID set names transactions that were read, not the ones that wrote their outcomes: a replica that took over
        may have the first and lack the second, so that its rows are behind the file. Raises Refused as `read` does.
        """
        stored = self._stored()
        return stored is not None and stored[1] != server_uuid

    def _stored(self) -> tuple[Position, str] | None:
        """The position and the server_uuid it was written with."""
        try:
            text = self.path.read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise self._refused(f"cannot be read: {error}") from error
        try:
            stored = json.loads(text)
            relay, uuid, gtids = stored["relay"], str(stored["server_uuid"]), stored["gtid_set"]
            gtid_set = None if gtids is None else GtidSet.parse(gtids)
            position = Position(str(stored["file"]), int(stored["pos"]), gtid_set)
        except (ValueError, TypeError, KeyError) as error:
            raise self._refused(f"holds no position: {error!r}") from None
        if relay != self._relay:
            raise self._refused(f"holds the position of relay {relay!r}, not of {self._relay!r}")
        return position, uuid

    def write(self, position: Position, server_uuid: str) -> None:
        """Replace the file, and return once it is on the disk. Raises OSError."""
        stored = {
            "relay": self._relay,
            "server_uuid": server_uuid,
            "file": position.file,
            "pos": position.offset,
            "gtid_set": None if position.gtid_set is None else str(position.gtid_set),
        }
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=self.path.parent, prefix=f".{self.path.name}-", delete=False
        ) as new:
            try:
                json.dump(stored, new)
                new.flush()
                os.fsync(new.fileno())
                Path(new.name).replace(self.path)
            except BaseException:
                Path(new.name).unlink(missing_ok=True)
                raise
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def check_folder(self) -> None:
        """Raises Refused unless a file can be made where it is to be."""
        if not os.access(self.path.parent, os.W_OK | os.X_OK):
            raise self._refused("cannot be written: its folder is missing, or this user may not write there")

    def _refused(self, what: str) -> Refused:
        return Refused(
            f"binlog.checkpoint_file: {self.path} {what}",
            hint="name another file, or remove this one: the next start then goes on from the position in MySQL,"
            " or sweeps everything pending",
            reason="checkpoint_file",
        )


def position_file(settings: Settings) -> PositionFile | None:
    """None where the position is kept in MySQL."""
    path = settings.binlog.checkpoint_file
    return None if path is None else PositionFile(path, settings.name)
