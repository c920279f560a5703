"""Start a server and send it plain HTTP requests: vectors, a ranking, masked words. Needs the extra `serve`.

Every language with HTTP and JSON can do the same; docs/guide/server.md lists the routes.

    python examples/serve_requests.py
"""

import json
import re
import subprocess
import sys
import time
from urllib.request import Request, urlopen

PASSAGES = ["Cats sleep most of the day.", "The ferry departs at noon.", "Interest rates rose again last month."]

# Port 0 is any free one. The log of requests would fill the pipe, which nobody reads after the first line.
command = [sys.executable, "-m", "bothways", "serve", "--port", "0", "--no-access-log"]
with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:

    def post(path, **body):
        request = Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urlopen(request, timeout=60) as response:
            return json.load(response), response.headers

    try:
        url = re.search(r"http://[\d.:]+", server.stderr.readline())[0]
        for _ in range(100):  # it may not listen yet
            try:
                urlopen(f"{url}/health", timeout=10).close()
                break
            except OSError:
                time.sleep(0.1)
        vectors, headers = post("/embed", inputs=PASSAGES)
        print(f"{len(vectors)} vectors of {len(vectors[0])} numbers, space {headers['X-Vector-Space']}")
        for rank in post("/rerank", query="When does the boat leave?", texts=PASSAGES)[0]:
            print(f"{rank['score']:.2f}  {PASSAGES[rank['index']]}")
        for guess in post("/fill", inputs="The [MASK] was built in the 19th century.", top=3)[0]:
            print(f"{guess['score']:.2f}  {guess['text']}")
    finally:
        server.terminate()  # SIGTERM: it answers what it has accepted, and ends
