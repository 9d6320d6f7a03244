"""An OpenID Connect client: the authorization code flow with PKCE, and every check of the identity token.

It turns a provider's answer into an `Identity`, or refuses. It knows no models and no pages; who an identity is here is
for `tenants.access.services.subjects` to say. No redirect is followed, nothing of the environment is sent along.
"""
