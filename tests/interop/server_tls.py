"""The server of server2.py over HTTPS, for tests of `call`: server_tls.py PORT FOLDER. It creates a certificate authority, and writes
to FOLDER the certificate of the authority (`authority.pem`), and the certificate and the key of the server (`own.pem`, `own.key`)."""

import datetime
import ipaddress
import sys
from pathlib import Path

import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from server2 import server

AUTHORITY = "an authority"
DAY = datetime.timedelta(days=1)


def named(name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def certificate(name, key, signer, is_authority):
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(named(name)).issuer_name(named(AUTHORITY)).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - DAY).not_valid_after(now + DAY)
    builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    if not is_authority:
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


if __name__ == "__main__":
    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    authority, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    (folder / "authority.pem").write_bytes(certificate(AUTHORITY, authority, authority, True))
    (folder / "own.pem").write_bytes(certificate("server", own, authority, False))
    plain = serialization.NoEncryption()
    (folder / "own.key").write_bytes(own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    app = server.streamable_http_app()
    uvicorn.run(app, port=port, ssl_certfile=folder / "own.pem", ssl_keyfile=folder / "own.key", log_level="error")
