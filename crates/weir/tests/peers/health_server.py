"""A server for the gRPC health checking protocol, built on the official grpcio library.

Arguments: plaintext port, TLS port, certificate, key, status directory. The file named after a service contains the
service's status as a number (grpc/health/v1/health.proto); `server` is the file for the empty name. A service without a
file is unknown.
"""

import concurrent.futures
import pathlib
import sys

import grpc

plaintext_port, tls_port, certificate, key, status_directory = sys.argv[1:]


def check(request, context):
    # HealthCheckRequest { string service = 1; }
    service = request[2:].decode() if request else ""
    path = pathlib.Path(status_directory) / (service or "server")
    if not path.exists():
        context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
    # HealthCheckResponse { ServingStatus status = 1; }
    status = int(path.read_text())
    return bytes([8, status]) if status else b""


def main():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    handlers = {"Check": grpc.unary_unary_rpc_method_handler(check)}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("grpc.health.v1.Health", handlers),)
    )
    key_and_certificate = (pathlib.Path(key).read_bytes(), pathlib.Path(certificate).read_bytes())
    server.add_insecure_port("0.0.0.0:" + plaintext_port)
    server.add_secure_port("0.0.0.0:" + tls_port, grpc.ssl_server_credentials([key_and_certificate]))
    server.start()
    server.wait_for_termination()


main()
