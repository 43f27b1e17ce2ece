"""Redis over TLS with a private CA: scheduler, worker and user reach it by what the URL says."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.deploy_check.operator import (
    PASSWORD,
    AgentProcess,
    environment,
    start_scheduler,
)
from benchmarks.deploy_check.parts import Missing, Ran, check, program, said, until
from benchmarks.deploy_check.processes import Processes, answers, free_ports, processes
from benchmarks.deploy_check.study import carry_through, write_script

_HINT = "does not trust its certificate"


def make_authority(folder: Path) -> None:
    """Write ``ca.pem``, and ``host.pem`` and ``host.key`` of 127.0.0.1, which the CA has signed."""
    openssl = program("openssl", "openssl")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
    for words in (
        ("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Our CA"),
        ("req", *curve, "-keyout", "host.key", "-out", "host.csr", "-subj", "/CN=broker"),
        ("x509", "-req", "-in", "host.csr", *signed, "-out", "host.pem"),
    ):
        said([openssl, *words], cwd=folder)


def start_redis(running: Processes, folder: Path) -> int:
    """Start a Redis that speaks TLS only; its port. Its settings come from a file."""
    make_authority(folder)
    [port] = free_ports(1)
    lines = (
        "port 0",
        f"tls-port {port}",
        "bind 127.0.0.1",
        f"tls-cert-file {folder / 'host.pem'}",
        f"tls-key-file {folder / 'host.key'}",
        f"tls-ca-cert-file {folder / 'ca.pem'}",
        "tls-auth-clients no",
        f"requirepass {PASSWORD}",
        f"dir {folder}",
        "appendonly yes",
        "maxmemory-policy noeviction",
    )
    file = folder / "redis.conf"
    file.write_text("\n".join(lines) + "\n")
    redis = running.start("redis", [program("redis-server", "redis-server"), file], cwd="/")
    until(lambda: redis.poll() is not None or answers("127.0.0.1", port), "Redis answers")
    # What servers without TLS say of the option differs from one to the next.
    if redis.poll() is not None and re.search(r"tls-port|TLS", running.log("redis")):
        raise Missing("redis-server here was built without TLS: take Debian's redis-server")
    running.check_alive("redis")
    return port


def run(folder: Path) -> Ran:
    """The study over TLS; before it, what is said where the CA or the host's name is wrong."""
    version = said([program("redis-server", "redis-server"), "--version"])
    with processes(folder) as running:
        port = start_redis(running, folder)
        url = f"rediss://:{PASSWORD}@127.0.0.1:{port}/0"
        unknown = environment(folder / "user", broker=url, devices="cpu:1x1")
        known = environment(
            folder / "node",
            broker=f"{url}?ssl_ca_certs={folder / 'ca.pem'}",
            devices="cpu:1x1",
        )
        site = start_scheduler(running, folder, broker=known["PENSTOCK_BROKER"])
        doctor = said([*site.penstock, "doctor"], env=unknown, status=3)
        check(_HINT in doctor and "?ssl_ca_certs=" in doctor, f"the doctor says: {doctor}")
        check(PASSWORD not in doctor, "the doctor shows the password")
        words = carry_through(site, AgentProcess(running, known), write_script(folder), 1)
        doctor = said([*site.penstock, "doctor"], env=known)
        check(_HINT not in doctor, f"the doctor says: {doctor}")
    number = re.search(r"v=([\d.]+)", version)
    return Ran(f"Redis {number[1] if number else version}", f"{words}; the doctor names the CA")
