#!/bin/sh
# Regenerates ../vectors.jsonl and ../refused.jsonl with Cyclone DDS, Fast CDR and the model, and has Cyclone DDS read what
# others wrote; see README.md for the versions.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-$(mktemp -d)}
mkdir -p "$build/cyclone" "$build/fastcdr" "$build/readback"
build=$(cd "$build" && pwd)
export PYTHONDONTWRITEBYTECODE=1
# Topics of our own process only.
export CYCLONEDDS_URI='<General><Interfaces><NetworkInterface name="lo"/></Interfaces><AllowMulticast>false</AllowMulticast></General>'

cd "$build/cyclone"
for idl in "$here"/../idl/*.idl "$here"/../../../workloads/market_data.idl; do
  case $idl in
    */wide.idl | */bitset.idl | */maps.idl) ;; # idlc 0.10 refuses these
    *) idlc -t -f case-sensitive -Wno-implicit-extensibility -Wno-enum-consecutive "$idl" ;;
  esac
done
python3 "$here/cyclone.py" "$here/../idl" > cases.c
cc -Wall -I. -I"$here" ./*.c "$here/cyclone.c" -lddsc -o cyclone
./cyclone > "$build/cyclone.txt"

cd "$build/fastcdr"
python3 "$here/fastcdr.py" "$here/../idl" > cases.cpp
c++ -std=c++17 -Wall -I"$here" cases.cpp "$here/fastcdr.cpp" -lfastcdr -o fastcdr
./fastcdr > "$build/fastcdr.txt"

python3 "$here/vectors.py" "$here/.." "$build"

cd "$build/readback"
python3 "$here/readback.py" offer "$here/.." > offers.c
cc -Wall -I"$build/cyclone" -I"$here" offers.c "$here/readback.c" $(ls "$build"/cyclone/*.c | grep -v cases.c) -lddsc -o readback
./readback > "$build/readback.txt"
python3 "$here/readback.py" compare "$here/.." "$build/readback.txt"
