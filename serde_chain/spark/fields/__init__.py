"""Large fields: columns within values, each fetched by the queries that use it."""
