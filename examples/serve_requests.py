"""Start a server and send it plain HTTP requests: vectors, a ranking, masked words. Needs the extra `serve`.

Every language with HTTP and JSON can do the same; docs/guide/server.md lists the routes.

    python examples/serve_requests.py
"""

import json
import subprocess
import sys
from urllib.request import Request, urlopen

PASSAGES = ["Cats sleep most of the day.", "The ferry departs at noon.", "Interest rates rose again last month."]

# Port 0 is any free one. --json: a line on standard output when the server is ready.
command = [sys.executable, "-m", "bothways", "serve", "--port", "0", "--json", "--no-access-log"]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:

    def post(path, **body):
        request = Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urlopen(request, timeout=60) as response:
            return json.load(response), response.headers

    try:
        assert server.stdout  # a pipe
        url = json.loads(server.stdout.readline())["url"]
        vectors, headers = post("/embed", inputs=PASSAGES)
        print(f"{len(vectors)} vectors of {len(vectors[0])} numbers, space {headers['X-Vector-Space']}")
        for rank in post("/rerank", query="When does the boat leave?", texts=PASSAGES)[0]:
            print(f"{rank['score']:.2f}  {PASSAGES[rank['index']]}")
        for guess in post("/fill", inputs="The [MASK] was built in the 19th century.", top=3)[0]:
            print(f"{guess['score']:.2f}  {guess['text']}")
    finally:
        server.terminate()  # SIGTERM: it answers what it has accepted, and ends
