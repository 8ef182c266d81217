#!/bin/sh
# Asks a running `fasa serve --model models/needle-3m`: serve_curl.sh [URL]
set -eu
url=${1:-http://127.0.0.1:8080}

curl -sS --fail "$url/v1/models"
echo
# A whole answer, then the same as a stream of events.
ask='{"prompt": "In the beginning", "max_tokens": 16, "temperature": 0'
curl -sS --fail "$url/v1/completions" -d "$ask}"
echo
curl -sSN --fail "$url/v1/completions" -d "$ask, \"stream\": true}"
