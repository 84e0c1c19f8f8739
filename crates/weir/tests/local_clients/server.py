"""A TCP, UDP and HTTP server that replies with its name, on all addresses."""
import http.server
import socket
import sys
import threading

NAME = sys.argv[1].encode()


def serve_client(client):
    try:
        client.sendall(NAME)
        while client.recv(100):
            pass
    except OSError:
        pass
    client.close()


def serve_datagrams():
    server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    server.bind(("::", 53))
    while True:
        _, client = server.recvfrom(2000)
        server.sendto(NAME, client)


class NameHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(NAME)))
        self.end_headers()
        self.wfile.write(NAME)

    def log_message(self, *_):
        pass


class WebServer(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6


web = WebServer(("::", 8090), NameHandler)
threading.Thread(target=web.serve_forever, daemon=True).start()
threading.Thread(target=serve_datagrams, daemon=True).start()
listener = socket.create_server(("::", 80), family=socket.AF_INET6, backlog=1000, dualstack_ipv6=True)
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    threading.Thread(target=serve_client, args=(connection,), daemon=True).start()
