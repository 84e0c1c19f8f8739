"""A server of gRPC's health checking protocol, with the grpcio library.

Arguments: plaintext port, TLS port, certificate, key, directory. The file in the directory that has a service's name
contains the service's status as a number (grpc/health/v1/health.proto); `server` is the file of the empty name. A
service without a file is unknown.
"""

import concurrent.futures
import pathlib
import sys

import grpc

plain, secure, certificate, key, statuses = sys.argv[1:]


def check(request, context):
    # HealthCheckRequest { string service = 1; }
    service = request[2:].decode() if request else ""
    path = pathlib.Path(statuses) / (service or "server")
    if not path.exists():
        context.abort(grpc.StatusCode.NOT_FOUND, "no service of that name")
    # HealthCheckResponse { ServingStatus status = 1; }
    status = int(path.read_text())
    return bytes([8, status]) if status else b""


def main():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    handlers = {"Check": grpc.unary_unary_rpc_method_handler(check)}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("grpc.health.v1.Health", handlers),)
    )
    pair = (pathlib.Path(key).read_bytes(), pathlib.Path(certificate).read_bytes())
    server.add_insecure_port("0.0.0.0:" + plain)
    server.add_secure_port("0.0.0.0:" + secure, grpc.ssl_server_credentials([pair]))
    server.start()
    server.wait_for_termination()


main()
