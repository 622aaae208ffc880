"""The in-process inference engine: scheduler, prefill, decode and prefix cache over any runtime."""
