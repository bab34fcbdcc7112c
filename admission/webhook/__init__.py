"""The admission webhook: a Flask application that mutates and validates. No SQL, no API call on a review."""
