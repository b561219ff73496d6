"""Who is calling: users, tokens, API keys. Knows neither media nor chat."""
