# sutler: the service, and every command. What is pinned by tag can be pinned to the byte: add the digest of the
# image that you have tried (python:...@sha256:...).
FROM python:3.13.16-slim-trixie AS base
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore

# All that is installed further down comes from these files, whose hashes are checked here.
FROM base AS wheels
WORKDIR /build
COPY requirements.lock ./
RUN pip download --only-binary=:all: --require-hashes --dest wheels --requirement requirements.lock

# requirements.lock also pins the tools of development: only what the package itself needs is installed.
FROM wheels AS dependencies
COPY pyproject.toml ./
RUN python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" \
        > needed.txt \
    && python -m venv --without-pip /opt/sutler \
    && pip --python /opt/sutler/bin/python install --no-index --find-links wheels --requirement needed.txt

FROM dependencies AS package
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY README.md LICENSE setup.py ./
COPY sutler sutler
COPY solver solver
COPY adapters adapters
COPY service service
COPY migrations migrations
RUN pip wheel --no-deps --no-index --find-links wheels --wheel-dir dist .

FROM base
RUN useradd --uid 10001 --user-group --create-home --home-dir /var/lib/sutler --shell /usr/sbin/nologin sutler
COPY --from=dependencies /opt/sutler /opt/sutler
RUN --mount=type=bind,from=package,source=/build/dist,target=/dist \
    pip --python /opt/sutler/bin/python install --no-index --no-deps /dist/*.whl
ENV PATH=/opt/sutler/bin:$PATH \
    SUTLER_DATA_DIR=/var/lib/sutler
WORKDIR /var/lib/sutler
USER 10001:10001
EXPOSE 8400
STOPSIGNAL SIGTERM
# Of the API; what runs anything else has to switch it off.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --start-interval=1s --retries=3 \
    CMD ["python", "-c", "from http.client import HTTPConnection as C; c = C('127.0.0.1', 8400, timeout=3); c.request('GET', '/healthz'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["sutler"]
CMD ["serve", "--host", "0.0.0.0"]
