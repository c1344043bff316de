# The two commands of the README, in a container:
#   docker build -t flipproof .
#   docker run --rm -v "$PWD/results:/flipproof/results" flipproof make reproduce
#   docker run --rm flipproof make test
# Another package index, such as that of PyTorch's CPU builds: docker build --build-arg PIP_EXTRA_INDEX_URL=... -t flipproof .
FROM python:3.11-slim

ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL

RUN apt-get update \
    && apt-get install -y --no-install-recommends git make \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /flipproof
COPY . .
RUN make setup && .venv/bin/flipproof --version

ENV PATH="/flipproof/.venv/bin:$PATH"
CMD ["make", "reproduce"]
