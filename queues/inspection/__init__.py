"""What people look at: JSON, the visibility API and a page, served by Flask from the read model."""
