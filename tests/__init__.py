"""Tests, sorted by what they touch: unit (nothing), contract, integration (servers), chaos (kills)."""
