# The relay with both Kafka clients. Built and run by docker-compose.yml; settings come as CDC_OUTBOX_… variables.
FROM python:3.12-slim AS build
# For the compiled decoder; the image that runs needs no compiler.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
WORKDIR /source
COPY pyproject.toml README.md ./
COPY scripts/build_accelerator.py scripts/
COPY cdc_outbox cdc_outbox
COPY schema schema
RUN python -m venv /opt/cdc-outbox && /opt/cdc-outbox/bin/pip install --no-cache-dir '.[fast,cloudevents,otel]'

FROM python:3.12-slim
COPY --from=build /opt/cdc-outbox /opt/cdc-outbox
ENV PATH=/opt/cdc-outbox/bin:$PATH PYTHONUNBUFFERED=1
RUN useradd --system --create-home relay
USER relay
ENTRYPOINT ["cdc-outbox"]
CMD ["start"]
