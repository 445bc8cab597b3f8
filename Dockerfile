# The relay with both Kafka clients and every record format. Settings come as a file or as CDC_OUTBOX_… variables:
#     docker run -e CDC_OUTBOX_NAME=orders … cdc-outbox
#     docker run -v $PWD/orders.yaml:/etc/cdc-outbox/relay.yaml:ro -e CDC_OUTBOX_CONFIG=/etc/cdc-outbox/relay.yaml cdc-outbox
FROM python:3.12-slim AS build
# For the compiled decoder; the image that runs needs no compiler. Versions are the base image's own.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml README.md ./
COPY scripts/build_accelerator.py scripts/
COPY cdc_outbox cdc_outbox
COPY schema schema
RUN python -m venv /opt/cdc-outbox && /opt/cdc-outbox/bin/pip install --no-cache-dir '.[fast,cloudevents,otel]'

FROM python:3.12-slim
COPY --from=build /opt/cdc-outbox /opt/cdc-outbox
ENV PATH=/opt/cdc-outbox/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# A number, so that Kubernetes can tell that it is not root; nothing in the image belongs to it.
USER 10001:10001
EXPOSE 9187
STOPSIGNAL SIGTERM
# Alive, not ready: a relay that waits for Kafka must not be restarted for it. `http: null` needs --no-healthcheck.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9187/healthz', timeout=3)"]
ENTRYPOINT ["cdc-outbox"]
CMD ["start"]
