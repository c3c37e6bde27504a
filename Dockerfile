FROM python:3.13-slim
WORKDIR /opt/sutler
COPY requirements.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY solver solver
COPY adapters adapters
COPY service service
COPY migrations migrations
RUN pip install --no-cache-dir --no-deps --no-build-isolation --editable . \
    && useradd --create-home sutler
USER sutler
ENTRYPOINT ["sutler"]
CMD ["serve"]
