"""The page: a cluster of any brokers of Kafka's protocol in a browser, by server-rendered HTML.

`views` has one file per view, which declares its pages and actions as `view` defines them; `app` makes the ASGI
application, and `protection` refuses what other sites send.
"""
