# One image for the API, the worker, the dead-letter consumer and the commands; compose.yaml says which runs.

FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN python3 -m venv /opt/redrive && python3 -m venv /tmp/build
WORKDIR /src
COPY requirements.lock requirements-dev.lock ./
RUN /opt/redrive/bin/pip install --quiet --require-hashes -r requirements.lock
# The build backend, at the version and hash of the lock, and outside of what is shipped.
RUN awk '/^[a-z0-9]/ { keep = /^setuptools==/ } keep' requirements-dev.lock > /tmp/build.lock \
 && /tmp/build/bin/pip install --quiet --require-hashes -r /tmp/build.lock
COPY . .
RUN /tmp/build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /tmp/wheels . \
 && /opt/redrive/bin/pip install --quiet --no-deps --no-index /tmp/wheels/*.whl

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /app --create-home --shell /usr/sbin/nologin redrive
COPY --from=build /opt/redrive /opt/redrive
ENV PATH=/opt/redrive/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Your own topology and jobs may lie here: the working directory is searched for modules.
WORKDIR /app
USER redrive
# All three processes end well on SIGTERM: no new work, what runs is finished, what is confirmed is settled. A worker
# takes REDRIVE_WORKER_GRACE_S at most; see stop_grace_period in compose.yaml.
STOPSIGNAL SIGTERM
CMD ["uvicorn", "api.app:app", "--host", "0.0.0.0", "--port", "8000"]
