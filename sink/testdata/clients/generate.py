#!/usr/bin/env python3
"""Asks the clients themselves where they keep 10,000 keys, and writes owners.json.

Needs a C compiler, libmemcached (Debian: libmemcached-dev), twemproxy (nutcracker) and Go. Run it in its folder. Keys are those of keys() here and
of clientKeys in the test. owners has a digit a key: the index of the server.
"""
import json, os, socket, subprocess, tempfile, threading, time

COUNT = 10000


def keys():
    forms = ["user:%d:profile", "feed:{%d}:v2", "naïve:日本語:%d", "o%d", "{}a{b}c:%d"]
    return [forms[i % len(forms)] % (i // len(forms)) for i in range(COUNT)]


INPUT = ("\n".join(keys()) + "\n").encode()


def servers(n, weights=None):
    """Host, port and weight of n servers; the second has memcached's own port."""
    hosts = [("127.0.0.%d" % (i + 11), 11211 if i == 1 else 23100 + i) for i in range(n)]
    return [(h, p, weights[i] if weights else 1) for i, (h, p) in enumerate(hosts)]


WEIGHTS = {3: [1, 2, 3], 10: [1, 1, 2, 3, 5, 8, 13, 1, 1, 7]}


def libmemcached(program, kind, chosen):
    args = [program, kind] + [str(x) for s in chosen for x in s]
    return subprocess.run(args, input=INPUT, stdout=subprocess.PIPE, check=True).stdout.decode()


def gomemcache(chosen):
    args = ["go", "run", "gomemcache.go"] + ["%s:%d" % s[:2] for s in chosen]
    return subprocess.run(args, input=INPUT, stdout=subprocess.PIPE, check=True).stdout.decode()


class Server(threading.Thread):
    """Answers every get with its own number."""

    def __init__(self, number, host, port):
        super().__init__(daemon=True)
        self.number = number
        self.listener = socket.create_server((host, port))
        self.start()

    def run(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        for line in connection.makefile("rb"):
            key = line.split()[1]
            connection.sendall(b"VALUE %s 0 1\r\n%d\r\nEND\r\n" % (key, self.number))


def twemproxy(folder, chosen, names, hash, tag):
    port = 23200
    conf = "pool:\n  listen: 127.0.0.1:%d\n  hash: %s\n  distribution: ketama\n  auto_eject_hosts: false\n" % (port, hash)
    if tag:
        conf += '  hash_tag: "%s"\n' % tag
    conf += "  servers:\n"
    for (host, p, weight), name in zip(chosen, names):
        conf += "   - %s:%d:%d%s\n" % (host, p, weight, " " + name if name else "")
    path = os.path.join(folder, "nutcracker.yml")
    with open(path, "w") as f:
        f.write(conf)
    proxy = subprocess.Popen(["nutcracker", "-c", path, "-s", "23201", "-o", os.path.join(folder, "log")])
    try:
        for _ in range(100):
            try:
                c = socket.create_connection(("127.0.0.1", port))
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        answers, owners = c.makefile("rb"), []
        for key in keys():
            c.sendall(b"get %s\r\n" % key.encode())
            line = answers.readline()
            if not line.startswith(b"VALUE"):
                raise RuntimeError(line)
            owners.append(answers.readline().strip().decode())
            answers.readline()
        return "".join(owners)
    finally:
        proxy.terminate()
        proxy.wait()


def ring(kind, chosen, owners, names=None, **more):
    shown = []
    for i, (host, port, weight) in enumerate(chosen):
        s = {"name": names[i]} if names and names[i] else {"server": "%s:%d" % (host, port)}
        if weight != 1:
            s["weight"] = weight
        shown.append(s)
    assert len(owners) == COUNT
    return {"kind": kind, **{k: v for k, v in more.items() if v}, "servers": shown, "owners": owners}


def main():
    rings = []
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "libmemcached")
        subprocess.run(["cc", "-o", program, "libmemcached.c", "-lmemcached"], check=True)
        for n in (3, 10):
            plain, weighted = servers(n), servers(n, WEIGHTS[n])
            rings.append(ring("ketama", plain, libmemcached(program, "ketama", plain)))
            rings.append(ring("ketama", plain, libmemcached(program, "ketama_md5", plain), hash="md5"))
            rings.append(ring("ketama_weighted", plain, libmemcached(program, "ketama_weighted", plain)))
            rings.append(ring("ketama_weighted", weighted, libmemcached(program, "ketama_weighted", weighted)))
            rings.append(ring("modulo", plain, gomemcache(plain)))
        for i, (host, port, _) in enumerate(servers(10)):
            Server(i, host, port)

        def twem(n, weights, names, hash="", tag=""):
            chosen = servers(n, weights)
            rings.append(ring("twemproxy", chosen, twemproxy(folder, chosen, names, hash or "fnv1a_64", tag), names, hash=hash, hash_tag=tag))

        for n in (3, 10):
            twem(n, None, [""] * n)
            twem(n, WEIGHTS[n], ["cache%d" % i if i % 2 else "" for i in range(n)], tag="{}")
        for hash in ("one_at_a_time", "md5", "crc16", "crc32", "crc32a", "fnv1_64", "fnv1_32", "fnv1a_32"):
            twem(10, None, ["shard%d:11211" % i for i in range(10)], hash=hash)
    with open("owners.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(r, ensure_ascii=False) for r in rings) + "\n]\n")


main()
