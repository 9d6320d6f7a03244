# One image for web, worker, beat and observer; the command decides.
FROM python:3.11-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/rung
COPY requirements.txt .
RUN /opt/rung/bin/pip install --no-deps --require-hashes -r requirements.txt

FROM python:3.11-slim
ENV PATH=/opt/rung/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    DJANGO_SETTINGS_MODULE=portal.settings RUNG_DATA=/var/lib/rung RUNG_STATIC_ROOT=/srv/rung/static
RUN useradd --system --uid 10001 --home-dir /var/lib/rung --create-home rung && mkdir -p /srv/rung/static
COPY --from=build /opt/rung /opt/rung
WORKDIR /srv/rung/app
COPY . .
# The key only lets the command start; nothing that it writes depends on it.
RUN RUNG_SECRET_KEY=build python manage.py collectstatic --noinput --verbosity 0 && chown -R rung:rung /var/lib/rung
USER rung
VOLUME /var/lib/rung
EXPOSE 8000
CMD ["uvicorn", "portal.asgi:application", "--host", "0.0.0.0", "--port", "8000", \
     "--no-proxy-headers", "--no-server-header", "--lifespan", "off"]
