"""Stages: one file per serializer and deserializer pair."""
