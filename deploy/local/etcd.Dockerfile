# etcd for docker-compose.yml: the same package that ./dev uses without containers.
FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends etcd-server etcd-client && rm -rf /var/lib/apt/lists/*
ENV ETCDCTL_API=3
CMD ["etcd"]
