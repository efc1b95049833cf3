"""Loading models and reading their structure."""
