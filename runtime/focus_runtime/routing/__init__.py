"""Hidden states -> groups: routers, centroids and centroid files."""
