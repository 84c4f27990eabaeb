"""The connection to the server: gRPC and protobuf end here."""
