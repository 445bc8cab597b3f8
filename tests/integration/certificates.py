"""A certificate authority of the tests' own, and files as MySQL, Kafka and our settings want them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, each in a file; `both`: key and chain in one, as Kafka's PEM key store wants them."""

    cert: str
    key: str
    both: str


class Authority:
    """Issues certificates below `folder`. ca: the file that trusts them."""

    def __init__(self, folder: Path, name: str = "tests") -> None:
        self._folder = folder
        self._authority = trustme.CA(organization_name=name)
        self.ca = str(folder / f"{name}-ca.pem")
        self._authority.cert_pem.write_to_path(self.ca)

    def server(self, *names: str) -> Pair:
        return self._written(self._authority.issue_cert(*names), f"server-{names[0]}")

    def client(self, name: str) -> Pair:
        return self._written(self._authority.issue_cert(f"{name}@example.org", common_name=name), f"client-{name}")

    def _written(self, issued: trustme.LeafCert, name: str) -> Pair:
        key = load_pem_private_key(issued.private_key_pem.bytes(), None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        chain = b"".join(one.bytes() for one in issued.cert_chain_pems)
        contents = {"cert": chain, "key": key, "both": key + chain}
        files = {}
        for kind, content in contents.items():
            path = self._folder / f"{name}-{kind}.pem"
            path.write_bytes(content)
            files[kind] = str(path)
        return Pair(**files)
