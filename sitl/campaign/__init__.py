"""Campaigns: many simulated flights with drawn numbers, on one machine or many."""
