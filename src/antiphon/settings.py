"""Settings: what a person may change from outside, with unit and default on every field.

Values come from `ANTIPHON_*` environment variables; arguments given in code win over them.
Secrets are never settings: they are files that a setting points to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """One process's settings."""

    model_config = SettingsConfigDict(env_prefix="ANTIPHON_", frozen=True, extra="ignore")

    home: Path | None = Field(
        default=None,
        description="State directory. Unset: the nearest `.antiphon` at or above the current one.",
    )
    slots: int = Field(default=8, ge=1, le=4096, description="Jobs that a worker runs at once.")
    drain_s: float = Field(
        default=20.0, ge=0, description="Seconds that running jobs get when a worker stops."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="warning", description="Least severe event that is written to standard error."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="How log lines are written."
    )
