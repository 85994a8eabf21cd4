"""`mesh.questions`: what people are asked, and their answers."""
