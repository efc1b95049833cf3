"""`/health` and `/ready`, for whoever supervises the server."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from focus_explorer.errors import InputError
from focus_explorer.usecases.service import Service


def health_routes(service: Service) -> list[Route]:
    """`/health`: the server answers. `/ready`: it can read its database too; 503 where it cannot."""

    async def health(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    def ready(request: Request) -> JSONResponse:
        try:
            with service.database.read() as connection:
                connection.execute("SELECT 1")
        except InputError:  # its message names the file, which is nobody's business
            return JSONResponse({"status": "the database cannot be read"}, 503)
        return JSONResponse({"status": "ok"})

    return [Route("/health", health), Route("/ready", ready)]
